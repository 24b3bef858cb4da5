#!/usr/bin/env python3
"""Fills the rows of docs/GPU.md that wait for a GPU from what run.sh printed, and shows what changed.

    fill.py JSON…             several files if sections were run in several calls; a later one wins
    fill.py --check [JSON…]   changes nothing; fails if a row of the page is unknown here, or if a section that was run fills no row

The page has a row once its section was run.
"""
import json
import pathlib
import sys
from typing import Callable, NamedTuple

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/GPU.md"
START, END = "<!-- gpu/fill.py fills these rows -->", "<!-- end of the rows -->"


class Run:
    """What was measured, over all files."""

    def __init__(self, files):
        self.sections, self.of = {}, {}
        for file in files:
            told = json.loads(pathlib.Path(file).read_text())
            facts = {one["fact"]: one["value"] for one in told["sections"].get("machine", {}).get("results", [])}
            for name, section in told["sections"].items():
                if section["status"] != "not run":
                    self.sections[name] = section
                    self.of[name] = [told["date"][:10], facts.get("name", ""), facts.get("driver_version", "")]
        known = next((of for of in self.of.values() if of[1]), None)
        # Only a call with the section `machine` knows the device; the others were made on the same one.
        for of in self.of.values():
            of[1:] = of[1:] if of[1] or not known else known[1:]

    def results(self, section, **wanted):
        found = self.sections.get(section, {}).get("results", [])
        return [one for one in found if all(str(one.get(key, "")).startswith(str(value)) for key, value in wanted.items())]

    def one(self, section, **wanted):
        return next(iter(self.results(section, **wanted)), None)


def conformance(device):
    def figure(run):
        told = run.one("conformance", device=device)
        return told and (f"{told['passed']} tests passed on {told['devices']}" if told["ended_with"] == 0 else "**fails**")
    return figure


def largest(run, section, device):
    told = run.results(section, what="masks", device=device)
    return max(told, key=lambda one: one["words"] * one["masks"], default=None)


def masks(run):
    told = largest(run, "masks", "cuda")
    return told and f"{told['seconds']:.2f} s for {told['words']:.0f} words and {told['masks']:.0f} masks, {told['verified_words']} words compared"


def applied(run):
    told, clock = largest(run, "masks", "cuda"), run.one("masks", what="clock")
    return told and f"{told['gb_per_s']:.0f} GB/s" + (f", at up to {clock['mhz']} MHz and {clock['watts']} W" if clock else "")


def transfer(run):
    told = run.one("masks", what="masks", device="cuda", masks=1)
    return told and told["masks"] == 1 and f"{told['seconds'] * 1000:.1f} ms" or None


def vulkan(run):
    through, native = largest(run, "vulkan", "wgpu"), largest(run, "masks", "cuda")
    if not through or not native or (through["words"], through["masks"]) != (native["words"], native["masks"]):
        return None
    return f"{through['gb_per_s'] / native['gb_per_s']:.2f} ({through['gb_per_s']:.0f} GB/s)"


def at_once(run):
    told = {one["sums"]: one["gb_per_s"] for one in run.results("sums", what="sums")}
    return ", ".join(f"{sums}: {rate:.0f} GB/s" for sums, rate in sorted(told.items())) or None


def robust(what):
    def figure(run):
        told = [run.one("robust", what="robust", device=device, words=1_000_000) for device in ("cuda", "cpu")]
        told[0] = told[0] or run.one("robust", what="robust", device="cuda")
        if not told[0]:
            return None
        beside = f", CPU {told[1][what]:.3f} s" if told[1] and told[1]["words"] == told[0]["words"] else ""
        return f"{told[0][what]:.3f} s of {told[0]['words']} words{beside}"
    return figure


def demo(section, name, beside):
    def figure(run):
        told, cpu = run.one(section, name=name), run.one(section, name=beside)
        if not told or not cpu:
            return None
        same = "the same model" if told["sha256"] == cpu["sha256"] else "**another model**"
        return f"{same} ({told['sha256'][:12]}), unmasked by {told['unmasked_by']}"
    return figure


def trained(run):
    told, cpu = run.one("demo", name="train-cuda"), run.one("demo", name="train-cpu")
    return told and cpu and f"{100 * told['accuracy']:.2f} % in {told['seconds']:.0f} s, on the CPU {100 * cpu['accuracy']:.2f} % in {cpu['seconds']:.0f} s"


def killed(run):
    if not run.one("loss", what="killed"):
        return None
    after = run.one("loss", what="masks", device="cuda")
    return f"the next process took masks off at {after['gb_per_s']:.0f} GB/s" if after else "**the next process could not use the device**"


def federation(run):
    told, alone = run.one("federation", what="federation"), run.one("federation", name="alone")
    if not told or not alone:
        return None
    return f"{'the same model' if told['sha256'] == alone['sha256'] else '**another model**'} after {told['kills']} kills, unmasked by {told['unmasked_by']}"


def training(model):
    def figure(run):
        words = []
        for ours in run.results("training", model=model):
            place = {key: ours[key] for key in ("model", "batch", "precision")}
            theirs = next((one for one in run.results("pytorch") if all(one.get(key) == value for key, value in place.items())), None)
            name = f"{ours['precision']}, batch {ours['batch']}"
            if "error" in ours:
                words.append(f"{name}: cannot ({ours['error'][:60]})")
            elif theirs and theirs.get("samples_per_s"):
                words.append(f"{name}: {ours['samples_per_s'] / theirs['samples_per_s']:.2f} × of {theirs['samples_per_s']:.0f}/s")
            else:
                words.append(f"{name}: {ours['samples_per_s']:.0f}/s")
        return "; ".join(words).replace("|", "/") or None
    return figure


def deviation(run):
    told = [one for one in run.results("training", precision="f32") if "deviation" in one]
    worst = max(told, key=lambda one: one["deviation"], default=None)
    return worst and f"{worst['deviation']:.1e} at most ({worst['model']}, batch {worst['batch']})"


def sanitizer(run):
    return "; ".join(f"{one['tool']}: {one['said'].strip('= ')}" for one in run.results("sanitizer")) or None


def binds(run):
    told = run.one("ncu", kernel="unmask")
    if not told:
        return None
    named = {"alu": "pipe_alu", "fma": "pipe_fma", "issue": "issue_active", "warps": "warps_active", "DRAM": "dram__throughput"}
    figures = {words: next((value for key, value in told.items() if part in key), None) for words, part in named.items()}
    return ", ".join(f"{words} {value:.0f} %" for words, value in figures.items() if value is not None)


class Row(NamedTuple):
    section: str
    figure: Callable[[Run], str | None]
    """What is measured, in words; None if the section was not run."""
    run: str
    """The sections that `run.sh` takes for it."""
    goal: str


# By the first cell of a row.
ROWS = {
    "conformance through CUDA": Row("conformance", conformance("cuda"), "conformance", "every bit equals the CPU's"),
    "conformance through Vulkan": Row("conformance", conformance("wgpu"), "conformance", "every bit equals the CPU's"),
    "masks, n = 1000, 10^7 words, 5 % dropouts": Row("masks", masks, "masks", "2.5 s"),
    "keystream applied there": Row("masks", applied, "masks", "1.0 TB/s"),
    "one mask over 10^7 words, which is all transfers": Row("masks", transfer, "masks", ""),
    "keystream applied through Vulkan, relative to CUDA": Row("vulkan", vulkan, "vulkan", "0.6"),
    "sums at once, 10^6 words and 1,000 masks each": Row("sums", at_once, "sums", ""),
    "median of 100 vectors": Row("robust", robust("median_s"), "robust", ""),
    "trimmed mean of 100 vectors": Row("robust", robust("trimmed_mean_s"), "robust", ""),
    "Gram matrix of 100 vectors": Row("robust", robust("gram_s"), "robust", ""),
    "whole demo, summed through CUDA": Row("demo", demo("demo", "sum-cuda", "sum-cpu"), "demo", "the CPU's SHA-256"),
    "whole demo, summed through Vulkan": Row("demo", demo("demo", "sum-wgpu", "sum-cpu"), "demo", "the CPU's SHA-256"),
    "whole demo, trained on CUDA": Row("demo", trained, "demo", "the CPU's accuracy"),
    "device lost in the middle of a round": Row("loss", demo("loss", "lost", "sum-cpu"), "loss", "the CPU's SHA-256"),
    "process killed that holds the device": Row("loss", killed, "loss", "the next one works"),
    "coordinator killed in the middle of rounds": Row("federation", federation, "federation", "the CPU's SHA-256"),
    "training linear, relative to PyTorch": Row("training", training("linear"), "training pytorch", ""),
    "training mlp, relative to PyTorch": Row("training", training("mlp"), "training pytorch", "0.8"),
    "training cnn, relative to PyTorch": Row("training", training("cnn"), "training pytorch", "0.8"),
    "training gru, relative to PyTorch": Row("training", training("gru"), "training pytorch", ""),
    "update after 20 steps in f32, relative distance from the CPU's": Row("training", deviation, "training", ""),
    "compute-sanitizer": Row("sanitizer", sanitizer, "sanitizer", "no errors"),
    "what binds the mask kernel (ncu)": Row("ncu", binds, "ncu", "arithmetic"),
}


def filled(page, run):
    """The page, and the sections of the rows that were filled."""
    before, rest = page.split(START)
    rows, after = rest.split(END)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows.splitlines() if line.startswith("|")]
    shown, sections = {row[0]: row[3] for row in cells[2:]}, set()
    for what, row in ROWS.items():
        words = row.figure(run)
        if words:
            sections.add(row.section)
            date, gpu, driver = run.of[row.section]
            shown[what] = f"{words}; {gpu}, driver {driver}, {date}"
        elif row.section in run.sections and run.sections[row.section]["status"] != "ok":
            shown[what] = f"**{run.sections[row.section]['status']}**: {run.sections[row.section]['reason'].strip('; ').replace('|', '/')}"
    lines = ["", "| What | `run.sh` | Goal | Figure |", "|---|---|---|---|"]
    lines += [f"| {what} | `{row.run}` | {row.goal} | {shown[what]} |" for what, row in ROWS.items() if what in shown]
    return f"{before}{START}{chr(10).join(lines)}\n{END}{after}", set(shown), sections


def main():
    check, files = "--check" in sys.argv, [argument for argument in sys.argv[1:] if argument != "--check"]
    run = Run(files)
    page = PAGE.read_text()
    new, seen, sections = filled(page, run)
    if seen - set(ROWS):
        sys.exit(f"{PAGE.name} has rows that are unknown here: {sorted(seen - set(ROWS))}")
    of_rows = {row.section for row in ROWS.values()}
    silent = {name for name, section in run.sections.items() if name in of_rows and section["status"] == "ok"} - sections
    if check and silent:
        sys.exit(f"sections that were run and fill no row: {sorted(silent)}")
    unknown = {name for name in sections if not run.of[name][1]}
    if not check and unknown:
        sys.exit(f"no GPU was seen (section machine, nvidia-smi), so nothing is written of {sorted(unknown)}")
    if not check:
        PAGE.write_text(new)
    known = page.splitlines()
    print(*(line for line in new.splitlines() if line not in known), sep="\n")


if __name__ == "__main__":
    main()
