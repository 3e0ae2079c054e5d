"""Which application a file gives, and what is said where it gives none."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import wiring
from headrace.cli.app_loading import load_app
from headrace.client.application_client import named
from headrace.errors import AppLoadError, TopologyError

ONE = 'import headrace as hr\nflights = hr.App("one")\n'


def written(folder: Path, text: str, name: str = "job.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_the_only_app_of_a_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + "again = flights\n")
    assert load_app(file).name == "one"
    assert load_app(f"{file}:again").name == "one"


def test_a_file_whose_name_is_no_text_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"job-\x9b.py")
    file.write_text(ONE)
    assert load_app(str(file)).name == "one"


def test_of_several_the_one_named_app_or_the_one_asked(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + 'app = hr.App("two")\nthird = hr.App("three")\n')
    assert load_app(file).name == "two"
    assert load_app(f"{file}:third").name == "three"


def test_of_several_without_one_named_app_the_names_are_given(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + 'third = hr.App("three")\n')
    with pytest.raises(AppLoadError) as caught:
        load_app(file)
    assert caught.value.hint == "say which one: job.py:flights or job.py:third"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "job.py makes no hr.App at its top level"),
        ("x = 1\ndef broken(:\n", "job.py, line 2: invalid syntax"),
        ("app = (\n", "job.py, line 1: '(' was never closed"),
        ("import nothing_of_that_name\n" + ONE, "job.py raised ModuleNotFoundError when it was imported"),
        ("import nothing_of_that_name\n", "job.py raised ModuleNotFoundError when it was imported"),
        ("raise SystemExit(3)\n" + ONE, "job.py raised SystemExit when it was imported"),
        (ONE + "raise GeneratorExit('x')\n", "job.py raised GeneratorExit when it was imported"),
        (ONE + "class Own(BaseException): pass\nraise Own\n", "job.py raised Own when it was imported"),
    ],
)
def test_a_file_without_an_app_says_why(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(AppLoadError) as caught:
        load_app(written(tmp_path, text))
    assert caught.value.message == expected


@pytest.mark.parametrize("data", [b"\x00\x01\x02abc", b"x = '\xff'\n"])
def test_a_binary_file_is_said_to_be_none_of_python(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "job.py").write_bytes(data)
    with pytest.raises(AppLoadError, match=r"^job\.py is no Python file: "):
        load_app(str(tmp_path / "job.py"))


def test_a_syntax_error_of_another_module_is_shown_where_it_is(tmp_path: Path) -> None:
    written(tmp_path, "x = (\n", "beside_and_broken.py")
    with pytest.raises(AppLoadError, match=r"^job\.py raised SyntaxError when it was imported") as caught:
        load_app(written(tmp_path, "import beside_and_broken\n"))
    assert "beside_and_broken.py" in caught.value.user_traceback


def test_a_folder_is_refused_and_its_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(AppLoadError, match="is a folder, expected a file") as caught:
        load_app(str(tmp_path))
    assert caught.value.hint == "give the file that makes the App: FILE.py[:name]"
    written(tmp_path, ONE)
    with pytest.raises(AppLoadError, match="is a folder, expected a file") as caught:
        load_app(str(tmp_path))
    assert caught.value.hint == "it holds job.py"
    with pytest.raises(AppLoadError, match="expected the name of a file"):
        load_app("")


def test_what_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rights are feigned: whoever runs the tests may be allowed to read everything."""
    file = written(tmp_path, ONE)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in (file, str(tmp_path)))
    with pytest.raises(AppLoadError, match=r"job\.py cannot be read"):
        load_app(file)
    with pytest.raises(AppLoadError, match=r"the folder .* cannot be read"):
        load_app(str(tmp_path / "other.py"))


def test_a_name_that_is_no_app_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + "number = 3\n")
    with pytest.raises(AppLoadError, match=r"job\.py:number is no hr\.App: it is a int"):
        load_app(f"{file}:number")
    with pytest.raises(AppLoadError, match=r"job\.py:nobody is no hr\.App: there is no such name"):
        load_app(f"{file}:nobody")


def test_a_missing_file_is_named_and_guessed(tmp_path: Path) -> None:
    written(tmp_path, ONE)
    with pytest.raises(AppLoadError, match="there is no file") as caught:
        load_app(str(tmp_path / "job"))
    assert str(caught.value.hint).endswith("job.py?")
    with pytest.raises(AppLoadError, match="there is no file") as caught:
        load_app(str(tmp_path / "jbo.py"))
    assert str(caught.value.hint).endswith("job.py?")


def test_the_users_traceback_begins_in_the_users_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'def helper():\n    return {}["x"]\nhelper()\n' + ONE)
    with pytest.raises(AppLoadError) as caught:
        load_app(file)
    lines = caught.value.user_traceback.splitlines()
    assert lines[1] == f'  File "{file}", line 3, in <module>'
    assert lines[-1] == "KeyError: 'x'"
    assert "loading.py" not in caught.value.user_traceback


def test_our_own_error_names_the_line_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + 'flights.stream("a").filter(3)\n')
    with pytest.raises(TopologyError) as caught:
        load_app(file)
    assert caught.value.__notes__ == ["job.py, line 3"]


def test_a_file_is_imported_not_run_and_hides_no_module_of_its_name(tmp_path: Path) -> None:
    file = written(tmp_path, ONE + "import calendar\nif __name__ == '__main__':\n    raise ValueError\n", "statistics.py")
    assert load_app(file).name == "one"
    assert getattr(sys.modules.get("statistics"), "flights", None) is None


def test_modules_beside_the_file_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    written(tmp_path, 'NAME = "beside"\n', "beside_the_app.py")
    file = written(tmp_path, "import headrace as hr\nfrom beside_the_app import NAME\napp = hr.App(NAME)\n")
    assert load_app(file).name == "beside"


def test_the_toml_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("max_round_ms = 1234\n")
    assert wiring.config_of(load_app(written(tmp_path, ONE))).max_round_ms == 1234


def test_a_program_reads_the_toml_beside_the_file_that_makes_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever folder it is started, and wherever the class of the application is from; what looks at the state too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "headrace.toml").write_text("state_uri = '/shared/state'\n")
    (tmp_path / "beside" / "one.py").write_text('import headrace as hr\napp = hr.App("one")\napp.stream("in").to("out")\n')
    (tmp_path / "other.py").write_text(
        "import headrace as hr\n\n\nclass Own(hr.App):\n    def __init__(self) -> None:\n        super().__init__('two')\n"
    )
    app = runpy.run_path(str(tmp_path / "beside" / "one.py"))["app"]
    assert wiring.config_of(app).state_uri == named(app)[1].state_uri == "/shared/state"
    own = runpy.run_path(str(tmp_path / "other.py"))["Own"]
    made: dict[str, Any] = {"Own": own, "__file__": str(tmp_path / "beside" / "three.py")}
    exec("app = Own()", made)
    assert wiring.config_of(made["app"]).state_uri == "/shared/state"
    at_a_prompt: dict[str, Any] = {"Own": own}
    exec("app = Own()", at_a_prompt)
    assert at_a_prompt["app"].config_folder is None


def test_a_file_that_runs_its_application_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "eager.py"
    file.write_text('import headrace as hr\napp = hr.App("eager")\napp.stream("in").to("out")\napp.run()\n')
    with pytest.raises(AppLoadError, match="runs its application at import"):
        load_app(str(file))


TOUCH = "open('touched', 'w').close()\n"
MAIN = "if __name__ == '__main__':\n    "


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        (TOUCH, {}),
        ("import os, shutil\nfrom pathlib import Path\npath = Path('x')\n" + TOUCH, {}),
        ("import pandas as pd\nframe = pd.DataFrame()\n" + TOUCH, {}),
        ("from helper import value\n" + TOUCH, {"helper.py": "value = 3\n"}),
        ("from pack.helper import value\n" + TOUCH, {"pack/__init__.py": "", "pack/helper.py": "value = 3\n"}),
        ("import headrace as hr\nlog = hr.open_system('log:./data')\n" + TOUCH, {}),
        ("import headrace as hr\ndef main():\n    app = hr.App('a')\n    return app\n" + TOUCH, {}),
        ("import headrace as hr\n" + TOUCH + MAIN + "app = hr.App('a')\n", {}),
        ("import headrace as hr\nclass Box:\n    app = hr.App('a')\n" + TOUCH, {}),
    ],
)
def test_a_file_that_makes_no_app_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, beside: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, source in beside.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    with pytest.raises(AppLoadError, match=r"^job\.py makes no hr\.App at its top level") as caught:
        load_app(written(tmp_path, text))
    assert str(caught.value.hint).endswith("it was read, and not executed")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize("runs", [
    "app.run()", "app.run(until='caught-up')", "job = app.start()",
    "app.start().wait()", "print(app.run())", "job: object = app.start()", "done = app.run() or 1", "[x for x in app.run()]",
    "App('b').run()", "if app.run(): pass", "if __name__ != '__main__': app.run()", "if not False: app.run()",
    "if 1: app.run()", "while True: app.run()", "with open('x'): app.run()",
    "try: app.run()\nfinally: pass", "try: pass\nfinally: app.run()", "with app.start() as job: pass",
    "if __name__ == '__main__': pass\nelse: app.run()",
    "def other():\n app = 3\napp.run()", "two = (one := App('b'))\none.run()",
    "with open('x'):\n try:\n  if True: app.run()\n except Exception: pass",
])  # fmt: skip
def test_a_file_that_runs_its_app_while_it_is_loaded_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"from headrace import App\n{TOUCH}app = App('a')\napp.stream('in').to('out')\n{runs}\n"
    with pytest.raises(AppLoadError, match=r"job\.py, line \d+: it runs its application at import") as caught:
        load_app(written(tmp_path, text))
    assert not (tmp_path / "touched").exists()
    assert "__main__" in str(caught.value.hint)
    line = int(caught.value.message.split()[2].rstrip(":"))
    assert any(call in f"{text}".splitlines()[line - 1] for call in (".run()", ".run(until", ".start()"))


@pytest.mark.parametrize("runs", [
    "if TOLD: app.run()", "for _ in TOLD: app.run()", "while TOLD: app.run()", "try: pass\nexcept Exception: app.run()",
    "if False: app.run()", "while False: app.run()", "if not 1: app.run()", "TOLD and app.run()", "app.run() if TOLD else 0",
    "[app.run() for _ in TOLD]", "again = lambda: app.run()", "def again():\n    app.run()",
    "if __name__ == '__main__': app.run()\nelse: pass", "if '__main__' == __name__:\n    app.run()",
    "0 < 0 < app.run()",
])  # fmt: skip
def test_a_run_that_the_source_leaves_open_is_not_refused_for_it(tmp_path: Path, runs: str) -> None:
    text = f"import headrace as hr\nTOLD = []\napp = hr.App('one')\n{runs}\n"
    assert load_app(written(tmp_path, text)).name == "one"


@pytest.mark.parametrize("made", ["app = Other()", "for app in [Other()]: pass", "with Other() as app: pass",
                                  "if TOLD: app = Other()", "app, x = Other(), 1", "(app := Other())",
                                  "def change():\n global app\n app = Other()\nchange()",
                                  "class app:\n run = staticmethod(print)"])  # fmt: skip
def test_a_name_that_is_given_to_something_else_too_may_be_run(tmp_path: Path, made: str) -> None:
    other = "class Other:\n def run(self): pass\n def __enter__(self): return self\n def __exit__(self, *of): pass\n"
    text = f"import headrace as hr\n{other}TOLD = [1]\nflights = app = hr.App('one')\n{made}\napp.run()\n"
    assert load_app(written(tmp_path, text)).name == "one"


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("from helper import app\n", {"helper.py": ONE.replace("flights", "app")}),
        ("import helper\napp = helper.flights\n", {"helper.py": ONE}),
        ("from helper import app\n", {"helper.py": "from deeper import make\napp = make()\n",
                                      "deeper.py": "import headrace\ndef make():\n    return headrace.App('one')\n"}),
        ("from pack.jobs import app\n", {"pack/__init__.py": "", "pack/jobs.py": "from .more import app\n",
                                         "pack/more.py": "from headrace import *\napp = App('one')\n"}),
        ("from pack import jobs\napp = jobs.flights\n", {"pack/__init__.py": "", "pack/jobs.py": ONE}),
        ("from headrace import App as Job\ndef made():\n    return Job('one')\napp = made()\n", {}),
        ("import headrace as hr\ntry:\n    app = hr.App('one')\nfinally:\n    pass\n", {}),
        ("import headrace as hr\nif (app := hr.App('one')):\n    pass\n", {}),
        ("import headrace as hr\nfor app in [hr.App('one')]:\n    pass\n", {}),
        ("import headrace as hr\ndef make():\n    global app\n    app = hr.App('one')\nmake()\n", {}),
        ("import importlib\napp = importlib.import_module('headrace').App('one')\n", {}),
        (ONE + "import sys\nif 'never' in sys.argv:\n    flights.run()\n", {}),
        (ONE + MAIN + "flights.run()\n", {}),
    ],
)  # fmt: skip
def test_an_app_is_found_however_it_comes_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, beside: dict[str, str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, source in beside.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    known = set(sys.modules)
    try:
        assert load_app(written(tmp_path, text)).name == "one"
    finally:
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in ("helper", "deeper", "pack"):
                del sys.modules[name]
