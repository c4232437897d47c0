"""``python -m dualfed``."""

from .runs.cli import main

if __name__ == "__main__":
    main()
