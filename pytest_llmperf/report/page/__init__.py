"""What the HTML page says, as plain values: a template only lays them out.

`overview` is the first screen, `facts` what is said of a test or a finding, `anchors` the links that stay the same
between runs, and `embedded` the data, the scripts and the rules of what a browser may run.
"""
