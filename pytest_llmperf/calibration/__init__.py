"""How often the gate is wrong on a machine: launches of one engine, divided into baselines and runs in every way.

============  ==================================================================
`measure`     runs a suite once, with many launches
`material`    the gated comparisons and their launches, from a results.json
`splits`      which launches are the baseline, and which the run
`trials`      one comparison through the gate, look by look
`tally`       shares with exact intervals
`findings`    all splits through the gate, with slowdowns injected
`text`        what a reader is told
`cli`         ``python -m pytest_llmperf calibrate``
============  ==================================================================
"""
