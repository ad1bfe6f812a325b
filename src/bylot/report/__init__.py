"""Tables, verdicts and pages, from finished records only: nothing here runs an experiment."""
