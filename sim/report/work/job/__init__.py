"""The answer about a job: verdict, tables, picture and page."""
