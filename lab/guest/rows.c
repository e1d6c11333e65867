/* SPDX-License-Identifier: Apache-2.0
 *
 * The database in a file system, see guest.h for what is in it.
 */
#include "guest.h"

#include <sqlite3.h>
#include <string.h>

/* New rows of a transaction, and of how many transactions they stay. */
#define ROWS 4
#define KEPT 256
#define ACCOUNTS 16
#define AMOUNTS 1000

#define U(n) ((unsigned long long)(n))

static const char schema[] =
	"pragma journal_mode = delete; pragma synchronous = extra;"
	"pragma temp_store = memory;"
	"create table if not exists rows("
	" number integer primary key, body blob not null);"
	"create table if not exists accounts("
	" name integer primary key, balance integer not null);"
	"create table if not exists progress("
	" first integer primary key, last integer not null);";

static const unsigned int pauses[] = {
	[IDLE] = 1000, [NORMAL] = 100, [HEAVY] = 0,
};

static sqlite3 *database;
static sqlite3_stmt *insert, *forget, *move, *note;
static uint32_t id;

static int prepare(sqlite3_stmt **statement, const char *text)
{
	return sqlite3_prepare_v2(database, text, -1, statement, NULL);
}

/* Run a statement with two numbers; 0 or what SQLite says. */
static int with(sqlite3_stmt *statement, sqlite3_int64 one, sqlite3_int64 two)
{
	int result;

	sqlite3_bind_int64(statement, 1, one);
	sqlite3_bind_int64(statement, 2, two);
	result = sqlite3_step(statement);
	sqlite3_reset(statement);
	return result == SQLITE_DONE ? 0 : result;
}

static int add_row(uint64_t seq, unsigned int number)
{
	static char body[BLOCK];
	struct stamp stamp = { DATA_MAGIC, id, number, 0, seq };

	seal(body, &stamp, sizeof(stamp));
	sqlite3_bind_blob(insert, 2, body, BLOCK, SQLITE_STATIC);
	sqlite3_bind_int64(insert, 1, seq * ROWS + number);
	if (sqlite3_step(insert) != SQLITE_DONE)
		return sqlite3_errcode(database);
	return sqlite3_reset(insert);
}

/* New rows, old rows, money from one account to another, and how far it is. */
static int transact(uint64_t first, uint64_t seq)
{
	uint64_t x = mix(mix(id) + seq);
	sqlite3_int64 amount = 1 + (x >> 32) % AMOUNTS;
	int result = sqlite3_exec(database, "begin", NULL, NULL, NULL);

	for (unsigned int i = 0; !result && i < ROWS; i++)
		result = add_row(seq, i);
	if (!result)
		result = with(forget, (seq + 1 - KEPT) * ROWS, 0);
	if (!result)
		result = with(move, x % ACCOUNTS, -amount);
	if (!result)
		result = with(move, (x >> 8) % ACCOUNTS, amount);
	if (!result)
		result = with(note, first, seq);
	return result ? result
		: sqlite3_exec(database, "commit", NULL, NULL, NULL);
}

static int begin(const char *path)
{
	int result;

	sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
	result = sqlite3_open(path, &database);
	if (!result)
		result = sqlite3_exec(database, schema, NULL, NULL, NULL);
	if (!result)
		result = prepare(&insert, "insert into rows values(?1, ?2)");
	if (!result)
		result = prepare(&forget, "delete from rows where "
				 "number < ?1 + ?2");
	if (!result)
		result = prepare(&move, "insert into accounts values(?1, ?2) "
				 "on conflict(name) do update set "
				 "balance = balance + ?2");
	if (!result)
		result = prepare(&note, "replace into progress "
				 "values(?1, ?2)");
	return result;
}

static void end(void)
{
	sqlite3_finalize(insert);
	sqlite3_finalize(forget);
	sqlite3_finalize(move);
	sqlite3_finalize(note);
	sqlite3_close(database);
}

int keep_rows(const char *path, uint32_t owner, uint64_t first)
{
	int result;

	id = owner;
	result = begin(path);
	for (uint64_t seq = first; !result && *mode < STOP; seq++) {
		result = transact(first, seq);
		if (!result)
			say("T %08x %llu %llu", id, U(first), U(seq));
		pause_ms(pauses[*mode < STOP ? *mode : HEAVY]);
	}
	if (result)
		say("E %08x %llu database %d %s", id, U(now()), result,
		    sqlite3_errmsg(database));
	end();
	return result != 0;
}
