"""The web page: rendered here, without a line of JavaScript, from the same services as the API."""
