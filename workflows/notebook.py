# Draws what a sweep found: miss rates over what was swept, and misses by colour. A notebook of marimo:
# `marimo edit notebook.py` opens it, `python3 notebook.py` only writes misses.svg and heat.svg beside the table.
# Other places and parameters: `python3 notebook.py -- --table results/all.csv --over colors`.

import marimo

app = marimo.App()


@app.cell
def _():
    from pathlib import Path

    import marimo as mo
    import matplotlib.pyplot as plt
    import polars as pl

    table = Path(mo.cli_args().get("table") or "results/all.csv")
    over = mo.cli_args().get("over") or "colors"
    return mo, over, pl, plt, table


@app.cell
def _(over, pl, table):
    # Columns that end in a number are of one colour each, of the cache whose colours count.
    rows = pl.read_csv(table, infer_schema_length=None)
    misses = [name for name in rows.columns if name.startswith("colors.misses.")]
    accesses = [name for name in rows.columns if name.startswith("colors.accesses.")]
    rate = 100 * pl.sum_horizontal(misses) / pl.sum_horizontal(accesses)
    points = (
        rows.with_columns(rate.alias("rate"))
        .group_by("trace", "machine_file", over, maintain_order=True)
        .agg(pl.col("rate").median(), pl.col(misses).mean())
    )
    units = points.partition_by("trace", "machine_file", as_dict=True, maintain_order=True)
    assert units, f"{table} has no rows"
    return misses, points, units


@app.cell
def _(over, plt, table, units):
    curves, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for (_trace, _machine), _unit in units.items():
        axes.plot(_unit[over], _unit["rate"], marker="o", label=f"{_trace}, {_machine}")
    axes.set(xlabel=over, ylabel="misses in % of accesses (median)", ylim=0)
    axes.legend()
    curves.savefig(table.with_name("misses.svg"))
    curves
    return


@app.cell
def _(misses, over, plt, table, units):
    heat, _all = plt.subplots(len(units), figsize=(7, 2.2 * len(units)), layout="constrained", squeeze=False)
    for _axes, ((_trace, _machine), _unit) in zip(_all[:, 0], units.items()):
        # A cache with fewer colours has no numbers for the rest.
        _colors = [name for name in misses if _unit[name].null_count() < len(_unit)]
        _image = _axes.imshow(_unit.select(_colors).to_numpy(), aspect="auto", interpolation="nearest")
        _axes.set(title=f"{_trace}, {_machine}", xlabel="colour", ylabel=over)
        _axes.set_yticks(range(len(_unit)), _unit[over])
        heat.colorbar(_image, ax=_axes, label="misses (mean)")
    heat.savefig(table.with_name("heat.svg"))
    heat
    return


if __name__ == "__main__":
    app.run()
