"""What carries the verdicts of a run elsewhere: made of results.json's record and of nothing else.

=============  ==============================================================
`summary`      summary.md, for a pull request
`pictures`     the charts beside it
`markdown`     text, code and tables that nothing in them can break out of
`benchmark`    benchmark.json, for github-action-benchmark
`junit`        properties of a test, for JUnit XML
=============  ==============================================================
"""
