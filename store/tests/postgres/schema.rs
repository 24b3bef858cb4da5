//! Migrations: at once from many processes, in step with SQLite's, refused where they are newer.

use std::collections::BTreeMap;

use store::{Store, StoreError};

use super::{config, fresh, store};

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_start_at_once_migrate_once() {
    let Some((cluster, database, url)) = fresh() else { return };
    let all: Vec<_> = (0..8).map(|_| tokio::spawn(Store::open(config(&url)))).collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    let Some((_, of_one, url)) = fresh() else { return };
    Store::open(config(&url)).await.unwrap();
    let versions = "SELECT string_agg(version::text, ' ' ORDER BY version) FROM schema_version";
    assert_eq!(cluster.sql(&database, versions), cluster.sql(&of_one, versions));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_refused() {
    let Some((cluster, database, url)) = fresh() else { return };
    drop(store(&url).await);
    cluster.sql(&database, "INSERT INTO schema_version (version, name) VALUES (1000, 'future')");
    let error = Store::open(config(&url)).await.err().unwrap();
    assert!(matches!(&error, StoreError::Schema(told) if told.contains("1000")), "{error}");
}

/// The same steps under the same names, and then the same tables with the same columns that take NULL.
#[tokio::test(flavor = "multi_thread")]
async fn both_databases_have_the_same_steps_tables_and_columns() {
    let steps = |database: &str| {
        let folder = format!("{}/../migrations/{database}", env!("CARGO_MANIFEST_DIR"));
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(steps("postgres"), steps("sqlite"));

    let Some((cluster, database, url)) = fresh() else { return };
    drop(store(&url).await);
    let listing = cluster.sql(
        &database,
        "SELECT table_name || ' ' || column_name || ' ' || (is_nullable = 'YES') FROM information_schema.columns
         WHERE table_schema = 'public'",
    );
    let mut on_postgres: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in listing.lines() {
        let (table, column) = line.split_once(' ').unwrap();
        on_postgres.entry(table.to_owned()).or_default().push(column.to_owned());
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.sqlite");
    let sqlite = store::StoreConfig { database: store::Database::SqliteFile(path.clone()), ..config(&url) };
    drop(Store::open(sqlite).await.unwrap());
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut statement = connection
        .prepare(
            "SELECT s.name, c.name, s.type = 'view' OR c.\"notnull\" = 0 AND c.pk = 0
             FROM sqlite_schema AS s, pragma_table_info(s.name) AS c WHERE s.type IN ('table', 'view')",
        )
        .unwrap();
    let mut on_sqlite: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rows = statement.query(()).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let (table, column, is_nullable): (String, String, bool) =
            (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap());
        on_sqlite.entry(table).or_default().push(format!("{column} {is_nullable}"));
    }
    for columns in on_postgres.values_mut().chain(on_sqlite.values_mut()) {
        columns.sort();
    }
    assert!(on_sqlite.len() > 20);
    assert_eq!(on_postgres, on_sqlite);
}

/// The order of a draw is that of participants' names by their bytes, in any locale of the database, and so is that of
/// lists by other names.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_in_the_order_of_their_bytes() {
    let Some((cluster, database, url)) = fresh() else { return };
    drop(store(&url).await);
    let names = "SELECT string_agg(table_name || '.' || column_name, ' ' ORDER BY table_name, column_name)
                 FROM information_schema.columns
                 WHERE table_schema = 'public' AND collation_name = 'C' AND table_name IN ('participant', 'noised_sum', 'model_server')";
    let in_order =
        "model_server.name noised_sum.coordinator noised_sum.sum_device noised_sum.unmask_device participant.name";
    assert_eq!(cluster.sql(&database, names), in_order);
}
