"""Pages: `template` has the jinja2 environment, `page` the small self-contained page of an answer."""
