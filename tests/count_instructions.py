"""Count the intermediate instructions that the README's first example compiles, with a cold cache.

    python tests/count_instructions.py

The number grows with what numba has to optimise, and hardly depends on the machine: compare it
before and after a change, where compile times are too noisy. It takes half a minute.
"""

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

README = Path(__file__).parent.parent / "README.md"


def count_lines(text: str) -> int:
    r"""Count the instructions in the text of a module: its indented lines, without labels.

    >>> count_lines("define i64 @f() {\nentry:\n  %x = add i64 1, 2\n  ret i64 %x\n}\n")
    2
    """
    return sum(line.startswith("  ") for line in text.splitlines())


def count_example(code: str) -> Counter[str]:
    """Run code with an empty cache, and count the instructions of each module that it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        from numba.core.codegen import CPUCodeLibrary

        counts = Counter[str]()
        add = CPUCodeLibrary.add_ir_module

        def count_and_add(library: Any, module: Any) -> None:
            counts[library.name] += count_lines(str(module))
            add(library, module)

        CPUCodeLibrary.add_ir_module = count_and_add
        try:
            exec(compile(code, str(README), "exec"), {})
        finally:
            CPUCodeLibrary.add_ir_module = add
    return counts


if __name__ == "__main__":
    example = README.read_text().partition("```python\n")[2].partition("```")[0]
    counted = count_example(example)
    print(f"{counted.total():,} instructions in {len(counted):,} modules; the largest:")
    for name, instructions in counted.most_common(10):
        print(f"{instructions:9,} {name}")
