"""How the examples of a page are read."""

from __future__ import annotations

import pytest

from tests.pages import Block, fits, stories

PAGE = """
# A page

```console
$ adk list
no such runs
```

<!-- given: parked; a worker -->

```console
$ adk inspect run_1 \\
    --tenant acme
run run_1 …
…
$ echo $?
0
```

```python
not_looked_at()
```

<!-- file: look.py -->
```python
print("here")
```

<!-- given: queued -->
<!-- file: carry.py -->

```python
print("there")
```

<!-- not run: it does not end -->

```console
$ adk dev
```
"""


def test_a_page_is_read_as_stories_of_blocks(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    first, second, third = stories(tmp_path / "page.md")

    assert (first.given, [typed.command for typed in first.blocks[0].dialogue]) == ("nothing", ["adk list"])
    assert second.given == "parked; a worker"
    dialogue, file = second.blocks
    assert [(typed.command, typed.shown) for typed in dialogue.dialogue] == [
        ("adk inspect run_1 \\\n    --tenant acme", ("run run_1 …", "…")),
        ("echo $?", ("0",)),
    ]
    assert (file.file, file.text) == ("look.py", 'print("here")\n')
    assert str(second) == "page.md:11"
    assert (third.given, third.blocks[0].file, third.blocks[0].text) == ("queued", "carry.py", 'print("there")\n')


def test_what_comes_back_before_anything_was_typed_is_a_mistake_of_the_page():
    with pytest.raises(ValueError, match="line 7: a console block begins with what is typed"):
        _ = Block(7, "nobody has asked\n").dialogue


@pytest.mark.parametrize(
    ("shown", "printed", "answer"),
    [
        (("run run_1",), "run run_1\n", True),
        (("run run_1",), "run run_1  \n", True),
        (("run run_1",), "run run_2\n", False),
        (("run run_1",), "run run_1\nand more\n", False),
        (("run …",), "run run_1\n", True),
        (("run …",), "run run_1\nand more\n", False),
        (("run run_1", "…"), "run run_1\nand\nmore\n", True),
        (("…", "more"), "run run_1\nand\nmore\n", True),
        (("a.b",), "axb\n", False),
    ],
)
def test_what_is_shown_is_compared_with_what_was_printed(shown, printed, answer):
    assert fits(shown, printed) == answer
