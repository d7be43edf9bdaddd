"""MLPerf results of services predicted row by row."""
