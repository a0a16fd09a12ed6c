"""The vocabulary of Penstock and the only definition of its two custom resources.

Every other room imports from here and this room imports none of them. What two rooms must agree
on (a label, an environment variable, a condition, a stage of planning) is written down once, in
the module named after it. `elasticjob` and `scale` hold the resources as pydantic models, on top
of `meta`, `template` and `penstock.base`; the committed CRDs are generated from them.
"""
