"""The zoo: real bugs of private software, and which auditor finds them."""
