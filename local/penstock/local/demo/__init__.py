"""``penstock demo``: one real job, from apply to success, watched from outside.

The demo sees what a person with kubectl and curl sees and no more: it reads the API server and the
Brain over HTTP, and what it reports was measured by the job itself.
"""
