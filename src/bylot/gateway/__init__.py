"""The gateway: an OpenAI-compatible endpoint whose panel of models a router draws and learns.

It asks the members of a decision over HTTP, scores their answers, returns one of them, and reports
scores and costs to the router. Listening, authentication and the event log are left to the server.
"""
