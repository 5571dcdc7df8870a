package origin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "modernc.org/sqlite"             // the driver sqlite
)

// items is the table.
type items struct {
	db         *sql.DB
	find, grow *sql.Stmt
	database   string
}

// openItems connects, and makes the table anew.
func openItems(ctx context.Context, dsn, dir string) (items, error) {
	driver, parameter := "pgx", "$1"
	if dsn == "" {
		driver, parameter, dsn = "sqlite", "?", sqliteFile(dir)
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return items{}, err
	}
	db.SetMaxOpenConns(2 * runtime.GOMAXPROCS(0))
	db.SetMaxIdleConns(2 * runtime.GOMAXPROCS(0))
	i := items{db: db}
	if err := i.create(ctx, driver, parameter); err != nil {
		return items{}, errors.Join(err, db.Close())
	}
	return i, nil
}

// sqliteFile names the database in dir. What a crash would lose does not matter here.
func sqliteFile(dir string) string {
	settings := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(OFF)"}, "_txlock": {"immediate"}}
	file := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "origin.db")), RawQuery: settings.Encode()}
	return file.String()
}

func (i *items) create(ctx context.Context, driver, parameter string) (err error) {
	version := "SELECT 'SQLite ' || sqlite_version()"
	if driver == "pgx" {
		version = "SELECT 'PostgreSQL ' || current_setting('server_version')"
	}
	if err := i.db.QueryRowContext(ctx, version).Scan(&i.database); err != nil {
		return err
	}
	for _, statement := range []string{
		`DROP TABLE IF EXISTS stockade_bench_items`,
		`CREATE TABLE stockade_bench_items (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)`,
		fmt.Sprintf(`WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id < %d)
			INSERT INTO stockade_bench_items (id, version) SELECT id, 1 FROM n`, Rows-1),
	} {
		if _, err := i.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if i.find, err = i.db.PrepareContext(ctx, strings.Replace(`SELECT version FROM stockade_bench_items WHERE id = ?`, "?", parameter, 1)); err != nil {
		return err
	}
	i.grow, err = i.db.PrepareContext(ctx, strings.Replace(`UPDATE stockade_bench_items SET version = version + 1 WHERE id = ? RETURNING version`, "?", parameter, 1))
	return err
}

func (i *items) version(ctx context.Context, id int) (version int, err error) {
	err = i.find.QueryRowContext(ctx, id).Scan(&version)
	return version, err
}

func (i *items) bump(ctx context.Context, id int) (version int, err error) {
	err = i.grow.QueryRowContext(ctx, id).Scan(&version)
	return version, err
}

func (i *items) name() string { return i.database }

// close leaves no table behind in a database that is not ours.
func (i *items) close() error {
	_, err := i.db.ExecContext(context.Background(), `DROP TABLE IF EXISTS stockade_bench_items`)
	return errors.Join(err, i.db.Close())
}
