"""The file that the supervisor has python execute: it makes room for the script and hands over.

It is run by its path, not by `-m`: so nothing of ours is looked up in the user's folders, where a `json.py` may lie.
"""

import os
import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this file's own folder; the script's takes its place
    # Last in line, so that it hides nothing, and gone before the script runs; a package once found needs no path.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from lossdoctor.launch import script

    sys.path.pop()
    script.main()
