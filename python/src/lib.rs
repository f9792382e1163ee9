//! The module `huepage` of Python: `sim`, which is `huepage sim` as a function. What runs and what the columns
//! are called is the program's business; here are only the types of both languages.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};
use serde_json::Value;

/// One trace or several.
#[derive(FromPyObject)]
enum Traces {
    One(PathBuf),
    All(Vec<PathBuf>),
}

/// Run traces on a simulated machine; a list with a dictionary for each row of `huepage sim --csv`.
///
/// The machine is a file or the name of a built-in one; several traces are programs that run together. Other
/// options are those of `huepage sim`, with underscores: sweep="colors=1..8", level=2, workload=["art", "swim"].
#[pyfunction]
#[pyo3(signature = (machine, traces, policy=None, **options))]
fn sim<'py>(
    py: Python<'py>,
    machine: PathBuf,
    traces: Traces,
    policy: Option<String>,
    options: Option<Bound<'py, PyDict>>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let mut words: Vec<OsString> = vec!["--machine".into(), machine.into()];
    words.extend(policy.map(|policy| format!("--policy={policy}").into()));
    for (name, value) in options.into_iter().flatten() {
        add(&mut words, &name.extract::<String>()?.replace('_', "-"), &value)?;
    }
    words.push("--".into());
    match traces {
        Traces::One(path) => words.push(path.into()),
        Traces::All(paths) => words.extend(paths.into_iter().map(OsString::from)),
    }
    let outcome = py.detach(|| huepage::inputs::table(words));
    match outcome.map_err(|error| PyValueError::new_err(error.to_string()))? {
        (rows, None) => rows.into_iter().map(|cells| dictionary(py, cells)).collect(),
        (_, Some(_)) => Err(PyKeyboardInterrupt::new_err("a signal asked for the end")),
    }
}

/// Adds an option with its value, or with each of several.
fn add(words: &mut Vec<OsString>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_instance_of::<PyBool>() {
        words.extend(value.is_truthy()?.then(|| format!("--{name}").into()));
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        value.try_iter()?.try_for_each(|item| add(words, name, &item?))?;
    } else {
        words.push(format!("--{name}={}", value.str()?).into());
    }
    Ok(())
}

fn dictionary(py: Python<'_>, cells: Vec<(String, Value)>) -> PyResult<Bound<'_, PyDict>> {
    let row = PyDict::new(py);
    cells.into_iter().try_for_each(|(name, value)| row.set_item(name, object(py, &value)?))?;
    Ok(row)
}

fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match (value.as_bool(), value.as_u64(), value.as_i64(), value.as_f64()) {
        (Some(flag), ..) => flag.into_bound_py_any(py),
        (_, Some(number), ..) => number.into_bound_py_any(py),
        (_, _, Some(number), _) => number.into_bound_py_any(py),
        (.., Some(number)) => number.into_bound_py_any(py),
        _ => value.as_str().into_bound_py_any(py),
    }
}

/// Simulates caches, TLBs and policies that choose frames, on traces of memory accesses.
#[pymodule]
#[pyo3(name = "huepage")]
fn huepage_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sim, module)?)
}
