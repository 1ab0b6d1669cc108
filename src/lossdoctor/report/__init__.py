"""From a diagnosis to text: terminal, JSON, HTML, notebooks, and the page of a fault. Nothing here judges or reads a run."""
