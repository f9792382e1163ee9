//! Rows of a sweep as a Parquet file, a record for each point and program, and back. What the
//! columns are is decided in `flat`; here they get types: UINT64, DOUBLE, UTF-8 or BOOLEAN,
//! each optional, in one row group and without compression.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;

use super::flat;

/// First bytes of a Parquet file.
pub const MAGIC: &[u8] = b"PAR1";

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Count,
    Figure,
    Text,
    Flag,
}

impl Kind {
    fn of(value: &Value) -> Option<Kind> {
        match value {
            Value::Number(number) if number.is_u64() => Some(Kind::Count),
            Value::Number(number) if number.is_f64() => Some(Kind::Figure),
            Value::String(_) => Some(Kind::Text),
            Value::Bool(_) => Some(Kind::Flag),
            _ => None,
        }
    }

    fn field(self, name: &str) -> Result<TypePtr, ParquetError> {
        let (physical, logical) = match self {
            Kind::Count => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Kind::Figure => (Physical::DOUBLE, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Flag => (Physical::BOOLEAN, None),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        Ok(Arc::new(field.build()?))
    }
}

/// A column over all records; a record without a value has none.
struct Column {
    name: String,
    kind: Kind,
    cells: Vec<Option<Value>>,
}

/// Writes rows, which are in the order of their points.
///
/// # Errors
/// When writing fails, or a column has values of two kinds.
pub fn write(rows: &[Value], out: impl Write + Send) -> Result<(), String> {
    let columns = columns(rows)?;
    store(&columns, out).map_err(|e| e.to_string())
}

fn columns(rows: &[Value]) -> Result<Vec<Column>, String> {
    let records: Vec<Vec<flat::Cell>> = rows.iter().flat_map(flat::records).collect();
    let mut columns = Vec::new();
    let mut places = BTreeMap::new();
    for name in flat::columns(&records) {
        places.insert(name.clone(), columns.len());
        columns.push(Column { name, kind: Kind::Text, cells: vec![None; records.len()] });
    }
    for (at, record) in records.into_iter().enumerate() {
        for (name, value) in record {
            let column = &mut columns[places[&name]];
            if column.cells[at].replace(value).is_some() {
                return Err(format!("two values of a run would be in column `{name}`"));
            }
        }
    }
    for column in &mut columns {
        column.kind = column.agree()?;
    }
    Ok(columns)
}

impl Column {
    /// The kind of all its values.
    fn agree(&self) -> Result<Kind, String> {
        let mut kinds = self.cells.iter().flatten().map(Kind::of);
        let first = kinds.next().flatten();
        let kind = first.filter(|&kind| kinds.all(|other| other == Some(kind)));
        kind.ok_or_else(|| format!("column `{}` would hold values of two kinds", self.name))
    }

    fn store(&self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let present: Vec<i16> = self.cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        let levels = Some(present.as_slice());
        let cells = self.cells.iter().flatten();
        match self.kind {
            Kind::Count => {
                let counts: Vec<i64> =
                    cells.filter_map(Value::as_u64).map(u64::cast_signed).collect();
                writer.typed::<Int64Type>().write_batch(&counts, levels, None)?;
            }
            Kind::Figure => {
                let figures: Vec<f64> = cells.filter_map(Value::as_f64).collect();
                writer.typed::<DoubleType>().write_batch(&figures, levels, None)?;
            }
            Kind::Text => {
                let texts: Vec<ByteArray> =
                    cells.filter_map(Value::as_str).map(ByteArray::from).collect();
                writer.typed::<ByteArrayType>().write_batch(&texts, levels, None)?;
            }
            Kind::Flag => {
                let flags: Vec<bool> = cells.filter_map(Value::as_bool).collect();
                writer.typed::<BoolType>().write_batch(&flags, levels, None)?;
            }
        }
        Ok(())
    }
}

fn store(columns: &[Column], out: impl Write + Send) -> Result<(), ParquetError> {
    let fields: Result<Vec<TypePtr>, _> =
        columns.iter().map(|column| column.kind.field(&column.name)).collect();
    let schema = Type::group_type_builder("sweep").with_fields(fields?).build()?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), properties)?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut writer) = group.next_column()? else { break };
        column.store(&mut writer)?;
        writer.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// The rows of a file that [`write()`] made, in the order of the file.
///
/// # Errors
/// In words: what is not as it was written.
pub fn read(file: impl ChunkReader + 'static) -> Result<Vec<Value>, String> {
    static HOOK: Once = Once::new();
    // The library panics on some damaged files. That is one error more, told like the others.
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !READING.get() {
                usual(info);
            }
        }));
    });
    READING.set(true);
    let rows = panic::catch_unwind(AssertUnwindSafe(|| read_rows(file)));
    READING.set(false);
    rows.unwrap_or_else(|_| Err("damaged: the Parquet file contradicts itself".to_owned()))
}

thread_local! {
    /// Whether a panic of this thread is the library's and will be caught.
    static READING: Cell<bool> = const { Cell::new(false) };
}

fn read_rows(file: impl ChunkReader + 'static) -> Result<Vec<Value>, String> {
    let reader = SerializedFileReader::new(file).map_err(|e| e.to_string())?;
    let mut points: Vec<(u64, Vec<BTreeMap<String, Value>>)> = Vec::new();
    for (number, record) in reader.get_row_iter(None).map_err(|e| e.to_string())?.enumerate() {
        let wrong = |what: &str| format!("record {number}: {what}");
        let record = record.map_err(|e| wrong(&e.to_string()))?;
        let cells = record.into_columns().into_iter();
        let cells: BTreeMap<String, Value> =
            cells.filter_map(|(name, field)| Some((name, value(field)?))).collect();
        let point = cells.get("point").and_then(Value::as_u64);
        let point = point.ok_or_else(|| wrong("no point of a sweep"))?;
        match points.last_mut().filter(|(last, _)| *last == point) {
            Some((_, records)) => records.push(cells),
            None => points.push((point, vec![cells])),
        }
    }
    let whole = |(point, records): &(u64, Vec<_>)| {
        flat::restore(records).map_err(|what| format!("point {point}: {what}"))
    };
    points.iter().map(whole).collect()
}

/// Whole numbers may come back signed when another program has rewritten the file.
fn value(field: Field) -> Option<Value> {
    match field {
        Field::ULong(count) => Some(Value::from(count)),
        Field::Long(count) => Some(Value::from(count)),
        Field::Double(figure) => Some(Value::from(figure)),
        Field::Str(text) => Some(Value::from(text)),
        Field::Bool(flag) => Some(Value::from(flag)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::metadata::ParquetMetaData;
    use serde_json::json;

    fn rows() -> Vec<Value> {
        let row = |point: u64, programs: u64| {
            let spaces: Vec<Value> =
                (0..programs).map(|n| json!({"space": n, "ipc": 1.0 / (n + 3) as f64})).collect();
            json!({
                "point": point,
                "parameters": [["colors", point.to_string()]],
                "report": {"walks": u64::MAX - point, "colors": null, "flag": true,
                           "misses": vec![point; usize::try_from(point).unwrap()],
                           "spaces": spaces},
            })
        };
        vec![row(0, 1), row(1, 3), row(4, 0)]
    }

    fn file(rows: &[Value]) -> bytes::Bytes {
        let mut file = Vec::new();
        write(rows, &mut file).unwrap();
        bytes::Bytes::from(file)
    }

    fn metadata(file: bytes::Bytes) -> ParquetMetaData {
        SerializedFileReader::new(file).unwrap().metadata().clone()
    }

    #[test]
    fn rows_come_back_to_the_byte() {
        let file = file(&rows());
        assert!(file.starts_with(MAGIC));
        let back = read(file).unwrap();
        let text = |rows: &[Value]| rows.iter().map(Value::to_string).collect::<Vec<_>>();
        assert_eq!(text(&back), text(&rows()));
        assert_eq!(read(self::file(&[])).unwrap(), Vec::<Value>::new());
    }

    #[test]
    fn there_is_a_record_for_each_point_and_program_and_columns_have_types() {
        let metadata = metadata(file(&rows()));
        assert_eq!(metadata.file_metadata().num_rows(), 1 + 3 + 1);
        let schema = metadata.file_metadata().schema_descr();
        let types: Vec<(&str, Physical)> =
            schema.columns().iter().map(|c| (c.name(), c.physical_type())).collect();
        for wanted in [
            ("point", Physical::INT64),
            ("colors", Physical::BYTE_ARRAY),
            ("flag", Physical::BOOLEAN),
            ("misses.3", Physical::INT64),
            ("spaces.ipc", Physical::DOUBLE),
        ] {
            assert!(types.contains(&wanted), "{wanted:?} in {types:?}");
        }
    }

    #[test]
    fn a_column_of_two_kinds_is_refused() {
        let mut rows = rows();
        rows[0]["report"]["walks"] = json!("many");
        assert!(write(&rows, Vec::new()).unwrap_err().contains("walks"));
        rows[0]["report"]["walks"] = json!(-1);
        assert!(write(&rows, Vec::new()).unwrap_err().contains("walks"));
    }

    #[test]
    fn a_damaged_file_is_an_error_or_other_rows_and_never_a_panic() {
        let file = file(&rows()[..2]);
        let mut refused = 0;
        for at in 0..file.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = file.to_vec();
                damaged[at] ^= change;
                // Values have no checksum: as in a text file, others may come out, but rows they are.
                match read(bytes::Bytes::from(damaged)) {
                    Ok(rows) => assert!(rows.iter().all(|row| row["point"].is_u64()), "byte {at}"),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > file.len(), "{refused} of {} changes refused", 3 * file.len());
    }

    #[test]
    fn a_file_cut_short_or_of_something_else_is_an_error() {
        let file = file(&rows());
        for length in [0, 4, 11, file.len() / 2, file.len() - 1] {
            assert!(read(file.slice(..length)).is_err(), "{length} of {} bytes", file.len());
        }
    }
}
