"""The bugs of the zoo, one in each module; `registry` finds them."""
