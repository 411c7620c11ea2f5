"""What consoles print between and after steps: saves that explain a gap, and how the program ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command

START = datetime(2026, 3, 1, 10)


def output(path: Path, text: str, *options: str) -> str:
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(command, [str(path), "--color", "never", *options]).output


def titan(seconds: float, said: str) -> str:
    moment = (START + timedelta(seconds=seconds)).isoformat(" ", "milliseconds").replace(".", ",")
    return f"[rank0]:[titan] {moment} - root - INFO - {said}\n"


def titan_steps(first: int, last: int, later: float = 0.0) -> str:
    return "".join(
        titan(2 * step + later, f"step: {step:2}  loss: {4 - step / 100:.5f}  memory: 10.00GiB(40.00%)  tps: 900")
        for step in range(first, last)
    )


def megatron(step: int, seconds: float, took: float, total: int = 90, scale: float = 1.0) -> str:
    moment = (START + timedelta(seconds=seconds)).isoformat(" ", "microseconds")
    return (
        f" [{moment}] iteration {step:8}/{total:8} | consumed samples: {step * 8:12} | "
        f"elapsed time per iteration (ms): {took * 1000:.1f} | learning rate: 1.000000E-04 | "
        f"global batch size:     8 | lm loss: {3 - step / 100:.6E} | loss scale: {scale} | grad norm: 1.{step:03} | "
        f"number of skipped iterations:   0 |\n"
    )


@pytest.mark.parametrize(
    ("said", "is_explained"),
    [
        ([(60, "Saving the checkpoint."), (130, "Finished saving the checkpoint in 70.00 seconds.")], True),
        ([(131, "Finished saving the checkpoint (or staging) in 69.50 seconds.")], True),
        ([(60, "[Torch] Saving out/weights.pt..."), (130, "[Torch] Saved out/weights.pt.")], True),
        ([(60, "Saving the checkpoint.")], False),
        ([(60, "Saving the checkpoint."), (61, "Finished saving the checkpoint in 1.00 seconds.")], False),
        ([(60, "Compiling the model.")], False),
    ],
)
def test_a_save_that_is_said_explains_a_gap(tmp_path: Path, said: list[tuple[int, str]], is_explained: bool) -> None:
    lines = "".join(titan(seconds, words) for seconds, words in said)
    told = output(tmp_path / "a.log", titan_steps(1, 30) + lines + titan_steps(30, 60, later=72))
    assert ("TS-TEL-033]" not in told) is is_explained


def test_the_timer_of_a_save_explains_a_gap_of_megatron(tmp_path: Path) -> None:
    def log(line: str) -> str:
        before = "".join(megatron(step, step, 1.0) for step in range(1, 30))
        return before + line + "".join(megatron(step, step + 20, 1.0) for step in range(30, 60))

    saved = "    save-checkpoint ................................: (19900.10, 19950.20)\n"
    assert "TS-TEL-037]" in output(tmp_path / "a.log", log(""))
    assert "TS-TEL-037]" not in output(tmp_path / "b.log", log(saved))


def test_a_second_report_that_is_a_mean_with_the_first_is_left_out(tmp_path: Path) -> None:
    lines = megatron(1, 1, 41.0) + megatron(2, 2, 21.0) + "".join(megatron(n, n, 1.0) for n in range(3, 30))
    assert "error[TS-TEL-037]" not in output(tmp_path / "a.log", lines)
    slow = megatron(1, 1, 1.0) + megatron(2, 2, 21.0) + "".join(megatron(n, n, 1.0) for n in range(3, 30))
    assert "TS-TEL-037]" in output(tmp_path / "b.log", slow)


def test_a_loss_that_is_not_scaled_does_not_overflow(tmp_path: Path) -> None:
    for scale, is_overflow in ((1.0, False), (65536.0, True)):
        path = tmp_path / f"{scale}.log"
        path.write_text("".join(megatron(n, n, 1.0, scale=scale) for n in range(1, 5)), encoding="utf-8")
        made = CliRunner().invoke(toolbox, ["import", str(path)]).stdout
        assert ("reason=overflow" in made) is is_overflow
        assert "train.step.skipped" in made


FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'


@pytest.mark.parametrize(
    ("before", "raised"),
    [
        ("[rank0]:[rank0]: ", "RuntimeError: the client was closed"),
        ("10.0.0.7: [rank20]: ", "FileNotFoundError: no such index"),
        ("  ", "RuntimeError: the client was closed"),
        ("", "Exception: the loss scale is at its minimum"),
        ("", "ValueError: RuntimeError: of another"),
    ],
)
def test_an_exception_behind_what_launchers_write_is_stated(tmp_path: Path, before: str, raised: str) -> None:
    frames = "".join(f"{before}{line}\n" for line in FRAMES.splitlines())
    told = output(tmp_path / "a.log", titan_steps(1, 9) + frames + before + raised + "\n")
    assert f"the log ends with: {raised}" in told


def test_an_exception_before_much_other_output_is_no_end(tmp_path: Path) -> None:
    early = FRAMES + "ModuleNotFoundError: No module named 'extra'\n"
    rest = "".join(f"INFO: part {number} of the setup\n" for number in range(200))
    told = output(tmp_path / "a.log", early + rest + "srun: error: node7: task 3: Killed\n")
    assert "srun: error: node7" in told
    assert "ModuleNotFoundError" not in told


@pytest.mark.parametrize(("why", "reason"), [(" DUE TO TASK FAILURE", ""), ("", " (attempt reason: operator)")])
def test_only_a_plain_cancellation_is_by_an_operator(tmp_path: Path, why: str, reason: str) -> None:
    end = f"slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-03-01T10:00:30{why}"
    told = output(tmp_path / "a.log", titan_steps(1, 9) + end + " ***\n")
    assert f"2026-03-01T10:00:30{why}{reason}" in told
    assert ("operator" in told) is bool(reason)


def test_the_page_of_a_run_states_its_end(tmp_path: Path) -> None:
    path, page = tmp_path / "a.log", tmp_path / "page.html"
    path.write_text(titan_steps(1, 9) + "torch.OutOfMemoryError: CUDA out of memory.\n", encoding="utf-8")
    CliRunner().invoke(toolbox, ["report", str(path), "-o", str(page)])
    text = page.read_text(encoding="utf-8")
    assert "OutOfMemoryError: CUDA out of memory" in text
    assert ">fails<" in text
    assert "No fault and no recovery" not in text
    assert "no fault was detected" not in text


def test_a_console_with_its_arguments_is_imported_as_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "hidden_size", "num_layers", "world_size")
    dump = "".join(f"  {name} {'.' * (48 - len(name))} 8\n" for name in names)
    head = "------------------------ arguments ------------------------\n"
    end = "-------------------- end of arguments ---------------------\n"
    path.write_text(head + dump + end + "".join(megatron(n, n, 1.0) for n in range(1, 5)), encoding="utf-8")
    told = CliRunner().invoke(toolbox, ["import", str(path)])
    assert told.exit_code == 0, told.output
    assert '"train.step.count":4.0' in told.stdout
    assert "--format megatron-arguments" in told.stderr


def test_two_jobs_in_one_console_are_not_compared(tmp_path: Path) -> None:
    def log(total: int) -> str:
        first = "".join(megatron(n, n, 1.0, total=5).replace("1.000000E-04", "4.000000E-04") for n in range(1, 6))
        return first + "".join(megatron(n, 200 + n, 1.0, total=total) for n in range(1, 40))

    told = output(tmp_path / "a.log", log(90))
    assert "another job begins, of 90 iterations after 5" in told
    assert "error[" not in told
    assert "error[TS-TEL-024]" in output(tmp_path / "b.log", log(5).replace("/      90", "/       5"))


@pytest.mark.parametrize(
    ("first", "before", "is_warm"), [(15107, "", False), (15107, "Restoring.\n", True), (0, "", True)]
)
def test_an_excerpt_shows_no_warm_up(tmp_path: Path, first: int, before: str, is_warm: bool) -> None:
    maxtext = "".join(
        f"completed step: {n}, seconds: 2.5, TFLOP/s/device: 100.0, loss: 3.{n % 10}\n" for n in range(first, first + 5)
    )
    nanogpt = "".join(f"iter {n}: loss 3.{n % 10}, time 250.00ms, mfu 30.00%\n" for n in range(first, first + 5))
    for name, lines in (("a.log", maxtext), ("b.log", nanogpt)):
        (tmp_path / name).write_text(before + lines, encoding="utf-8")
        made = CliRunner().invoke(toolbox, ["import", str(tmp_path / name)]).stdout
        assert ("train.step.warmup" in made) is is_warm
