"""What `import sim` offers in Python: the commands as functions, their answers as frames and figures."""
