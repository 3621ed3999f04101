"""``python -m otmoe``."""

from otmoe.cli import main

if __name__ == "__main__":
    main(prog_name="otmoe")
