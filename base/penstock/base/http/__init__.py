"""HTTP servers whose connections are bounded before anybody is known (needs uvicorn)."""
