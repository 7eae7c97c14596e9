"""Parts of reports on one subject each: lines of a case's table, remarks, and lists."""
