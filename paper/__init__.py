"""The paper's study, re-run: each step writes a CSV that is tracked, and tables come from the CSV."""
