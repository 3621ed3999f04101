"""What paper/ and benchmarks/ share: rows of CSV files, machines, truths, tables, Chromium."""
