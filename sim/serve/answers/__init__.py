"""What a finished run answers, and the files that it can be taken along as."""
