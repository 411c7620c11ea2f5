"""Models of the appendix that no program needs: pure functions over plain numbers, each with its source."""
