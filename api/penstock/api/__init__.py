"""The REST API of the Brain, its web page, and the wire schemas.

`penstock.wire` needs pydantic alone; everything else needs the extra ``brain``.
"""
