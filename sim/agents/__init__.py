"""Server of the Model Context Protocol (MCP): gpufleet's commands as tools for agents.

answers      small typed answers
workspace    folder that tools may use, checks of paths, limits on size and time
commands     commands of gpufleet as child processes, with progress and a time limit
server       tools and resources
http         streamable HTTP behind a token
"""
