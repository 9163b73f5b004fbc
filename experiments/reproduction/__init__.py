"""Papers from settings to one page: plans, processes, comparisons, pages."""
