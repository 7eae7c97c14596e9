"""Parts of reports, one file for each subject: lines of a case's table, remarks and lists."""
