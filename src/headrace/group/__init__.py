"""A standalone group as one of its processes sees it, on a tree of nodes (`headrace.coordination`)."""
