"""The REST API of the Brain, its web page, and the wire schemas.

`penstock.api.schemas` needs pydantic alone; everything else needs the extra ``brain``.
"""
