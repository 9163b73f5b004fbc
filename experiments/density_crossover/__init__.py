"""Where privacy costs more than sampling."""
