"""The answer about a queue of jobs: verdict, tables, picture and page."""
