"""What the HTML page says, as plain values: a template only lays them out.

`overview` is the first screen, `facts` the sentences of a test, `rows` the table of tests, `anchors` the links that stay
the same between runs, and `embedded` the data, the scripts and the rules of what a browser may run.
"""
