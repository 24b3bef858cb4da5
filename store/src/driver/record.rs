//! Records: types whose fields are columns, listed once for reading and for inserting.

use super::value::Bind;

/// A type that is a whole row of a table.
pub(crate) trait Record: Bind {
    const INSERT: &'static str;
    /// Skips the insertion if the table has a row with one of its unique keys.
    const INSERT_IF_ABSENT: &'static str;
}

/// Reads a type from the columns of its fields: `columns!(Type { field, other: column })`. A field without a column has
/// the column's name; `attempt` is the three columns of an [`Attempt`](federation::id::Attempt), and `token_or_identity` the four of a
/// [`Holder`](crate::entity::sign_in::Holder).
macro_rules! columns {
    ($type:ty { $($field:ident $(: $column:ident)?),+ $(,)? }) => {
        impl crate::driver::FromRow for $type {
            fn from_row(row: &crate::driver::Row<'_>) -> crate::error::Result<Self> {
                Ok(Self { $($field: column!(row, $field $(: $column)?)),+ })
            }
        }
    };
}

/// The same for a type that is also inserted into the table: `record!("table", Type { … })`.
macro_rules! record {
    ($table:literal, $type:ty { $($field:ident $(: $column:ident)?),+ $(,)? }) => {
        columns!($type { $($field $(: $column)?),+ });

        impl crate::driver::Bind for $type {
            fn bind<'q>(&'q self, to: &mut Vec<crate::driver::Value<'q>>) -> crate::error::Result<()> {
                $(crate::driver::Bind::bind(&self.$field, to)?;)+
                Ok(())
            }
        }

        impl crate::driver::Record for $type {
            const INSERT: &'static str = insertion!($table, $($field $(: $column)?),+);
            const INSERT_IF_ABSENT: &'static str =
                concat!(insertion!($table, $($field $(: $column)?),+), " ON CONFLICT DO NOTHING");
        }
    };
}

macro_rules! insertion {
    ($table:literal, $first:ident $(: $first_column:ident)? $(, $field:ident $(: $column:ident)?)*) => {
        concat!(
            "INSERT INTO ", $table, " (", column!(names, $first $(: $first_column)?),
            $(", ", column!(names, $field $(: $column)?),)*
            ") VALUES (", column!(marks, $first $(: $first_column)?),
            $(", ", column!(marks, $field $(: $column)?),)*
            ")"
        )
    };
}

/// The column of a field: its value in a row, its name, or its parameter.
macro_rules! column {
    ($as:ident, $field:ident : $column:ident) => {
        column!($as, $column)
    };
    (names, attempt) => {
        "task, number, attempt"
    };
    (names, token_or_identity) => {
        "token, issuer, subject_sha256, claim_values"
    };
    (names, $column:ident) => {
        stringify!($column)
    };
    (marks, attempt) => {
        "?, ?, ?"
    };
    (marks, token_or_identity) => {
        "?, ?, ?, ?"
    };
    (marks, $column:ident) => {
        "?"
    };
    ($row:ident, attempt) => {
        crate::driver::FromRow::from_row($row)?
    };
    ($row:ident, token_or_identity) => {
        crate::driver::FromRow::from_row($row)?
    };
    ($row:ident, $column:ident) => {
        $row.get(stringify!($column))?
    };
}
