"""Let `python -m lossdoctor` be the command line."""

from lossdoctor.cli import main

if __name__ == "__main__":
    main()
