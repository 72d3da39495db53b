//! A table in SQLite or PostgreSQL, with a column per member of a result.

use std::time::Duration;

use hob_database::private_file;
use hob_service::config::Secrets;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::error::{Error, Result};
use crate::plan::SinkDatabase;
use crate::plan::secrets;
use crate::sink::column::{Column, ColumnType};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A table in which rows are replaced by key.
#[derive(Debug)]
pub(crate) enum Table {
    Sqlite { pool: SqlitePool, upsert: SqlStr },
    Postgres { pool: PgPool, upsert: SqlStr },
}

impl Table {
    /// Opens the table; creates it if it does not exist. The names are valid SQL identifiers. A table that exists keeps its
    /// types.
    pub(crate) async fn open(
        database: &SinkDatabase,
        table: &str,
        key: &[String],
        columns: &[Column],
        secrets: &Secrets,
    ) -> Result<Self> {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        match database {
            SinkDatabase::Sqlite(path) => {
                let make = create(table, key, columns, ColumnType::in_sqlite);
                private_file::create_sqlite(path)
                    .map_err(|source| Error::File { what: path.display().to_string(), source })?;
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(CONNECT_WITHIN);
                let pool = pool.connect_with(options).await?;
                sqlx::query(make).execute(&pool).await?;
                let values = names.iter().map(|name| format!("json_extract($1, '$.{name}')"));
                let upsert = upsert(table, key, &names, &format!("VALUES ({})", list(values)));
                Ok(Self::Sqlite { pool, upsert })
            }
            SinkDatabase::Postgres(name) => {
                let make = create(table, key, columns, ColumnType::in_postgres);
                let url = secrets::database_url(secrets, name)
                    .map_err(|refused| Error::secret("postgres", refused))?;
                let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(CONNECT_WITHIN);
                let pool = pool.connect(url.reveal()).await?;
                sqlx::query(make).execute(&pool).await?;
                // Members are converted to the column types of the table.
                let values = list(names.iter().map(|name| quote(name)));
                let rows =
                    format!("SELECT {values} FROM jsonb_populate_record(NULL::{}, $1::jsonb)", quote(table));
                Ok(Self::Postgres { pool, upsert: upsert(table, key, &names, &rows) })
            }
        }
    }

    /// Inserts or replaces rows in one transaction.
    pub(crate) async fn upsert(&self, lines: &[&str]) -> Result<()> {
        match self {
            Self::Sqlite { pool, upsert } => {
                let mut tx = pool.begin().await?;
                for line in lines {
                    sqlx::query(upsert.clone()).bind(*line).execute(&mut *tx).await?;
                }
                tx.commit().await?;
            }
            Self::Postgres { pool, upsert } => {
                let mut tx = pool.begin().await?;
                for line in lines {
                    sqlx::query(upsert.clone()).bind(*line).execute(&mut *tx).await?;
                }
                tx.commit().await?;
            }
        }
        Ok(())
    }
}

fn create(
    table: &str,
    key: &[String],
    columns: &[Column],
    sql_type: fn(ColumnType) -> &'static str,
) -> SqlStr {
    let column = |column: &Column| format!("{} {}", quote(&column.name), sql_type(column.kind));
    let columns = list(columns.iter().map(column));
    let key = list(key.iter().map(|name| quote(name)));
    safe(format!("CREATE TABLE IF NOT EXISTS {} ({columns}, PRIMARY KEY ({key}))", quote(table)))
}

fn upsert(table: &str, key: &[String], columns: &[String], rows: &str) -> SqlStr {
    let names = list(columns.iter().map(|name| quote(name)));
    let target = list(key.iter().map(|name| quote(name)));
    let others: Vec<String> = columns
        .iter()
        .filter(|name| !key.contains(name))
        .map(|name| format!("{0} = excluded.{0}", quote(name)))
        .collect();
    let then =
        if others.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", others.join(", ")) };
    // Without WHERE, SQLite would parse ON as part of a join.
    let rows = if rows.starts_with("SELECT") { format!("{rows} WHERE TRUE") } else { rows.to_owned() };
    safe(format!("INSERT INTO {} ({names}) {rows} ON CONFLICT ({target}) DO {then}", quote(table)))
}

fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn quote(name: &str) -> String {
    format!("\"{name}\"")
}

/// Safe: the text consists of literals and validated identifiers.
fn safe(text: String) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}
