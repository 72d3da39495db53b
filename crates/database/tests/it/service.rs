//! The sample service.

use hob_database::outbox::{self, Relay, Replay, Retention};
use hob_database::{Database, Page, PageRequest, Read};
use hob_testkit::every_database;

use crate::notes::{self, Note, NoteId, PUBLISHED, Publication, State};

fn id(n: usize) -> NoteId {
    NoteId(format!("n{n:03}"))
}

/// Reads all pages.
async fn all_pages(database: &Database, size: u16) -> Vec<Page<Note>> {
    let mut pages = Vec::new();
    let mut request = PageRequest::first(size);
    loop {
        let page = notes::page(database, "ada", &request).await.unwrap();
        let next = page.next.clone();
        pages.push(page);
        let Some(next) = next else { return pages };
        // As a client sends it back.
        request = request.after(next.to_string().parse().unwrap());
    }
}

every_database! {
    async fn written_note_can_be_read(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        notes::add(&database, &id(1), "ada", "On engines").await.unwrap();
        let note = database.one(notes::by_id(&id(1))).await.unwrap();
        assert_eq!((note.id, note.author.as_str(), note.title.as_str()), (id(1), "ada", "On engines"));
        assert_eq!((note.state, note.pinned, note.version), (State::Draft, false, 1));
        assert_eq!(database.optional(notes::by_id(&id(2))).await.unwrap(), None);
    }

    async fn single_statement_is_a_transaction(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        notes::add(&database, &id(1), "ada", "first").await.unwrap();
        assert!(notes::pin(&database, &id(1)).await.unwrap());
        assert!(!notes::pin(&database, &id(2)).await.unwrap());
        assert!(database.one(notes::by_id(&id(1))).await.unwrap().pinned);
    }

    async fn duplicate_id_is_reported(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        notes::add(&database, &id(1), "ada", "first").await.unwrap();
        let error = notes::add(&database, &id(1), "ada", "second").await.unwrap_err();
        assert!(error.is_unique_violation(), "{error:?}");
    }

    async fn only_the_version_that_was_seen_is_published(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        notes::add(&database, &id(1), "ada", "first").await.unwrap();
        assert_eq!(notes::publish(&database, &id(1), 7).await.unwrap(), Publication::Outdated);
        assert_eq!(notes::publish(&database, &id(1), 1).await.unwrap(), Publication::Published);
        assert_eq!(notes::publish(&database, &id(1), 2).await.unwrap(), Publication::Outdated);

        let mut relay = Relay::new(&database, Retention::default());
        relay.run_round(async |_| Ok::<_, String>(())).await.unwrap();
        let Replay::Events(events) = outbox::after(&database, PUBLISHED, 0, 10).await.unwrap() else {
            panic!("events are missing");
        };
        let published: Vec<_> = events.iter().map(|event| (event.number, event.key.as_str())).collect();
        assert_eq!(published, [(1, "n001")]);
    }

    async fn list_of_ids_finds_the_existing_ones(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        for n in 1..=5 {
            notes::add(&database, &id(n), "ada", "a note").await.unwrap();
        }
        for (requested, found) in [(vec![], 0), (vec![1], 1), (vec![1, 2, 9], 2), (vec![1, 2, 3, 4, 5], 5)] {
            let ids: Vec<_> = requested.into_iter().map(id).collect();
            assert_eq!(database.all(notes::titles(&ids)).await.unwrap().len(), found);
        }
    }

    async fn pages_contain_every_note_once_and_in_order(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        for n in 0..25 {
            notes::add(&database, &id(n), "ada", "a note").await.unwrap();
            notes::add(&database, &id(100 + n), "another", "a note").await.unwrap();
        }
        let everything = all_pages(&database, 500).await.remove(0).rows;
        assert!(everything.is_sorted_by_key(|note| std::cmp::Reverse((note.created_at, note.id.0.clone()))));
        for size in [1, 7, 24, 25, 26] {
            let pages = all_pages(&database, size).await;
            assert_eq!(pages.len(), 25_usize.div_ceil(size.into()));
            let rows: Vec<Note> = pages.into_iter().flat_map(|page| page.rows).collect();
            assert_eq!(rows, everything);
        }
    }

    async fn note_inserted_between_two_pages_shifts_no_other(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        for n in 0..4 {
            notes::add(&database, &id(n), "ada", "a note").await.unwrap();
        }
        let first = notes::page(&database, "ada", &PageRequest::first(2)).await.unwrap();
        notes::add(&database, &id(9), "ada", "a new one").await.unwrap();
        let request = PageRequest::first(2).after(first.next.unwrap());
        let second = notes::page(&database, "ada", &request).await.unwrap();
        let ids: Vec<_> = first.rows.into_iter().chain(second.rows).map(|note| note.id).collect();
        assert_eq!(ids, [id(3), id(2), id(1), id(0)]);
    }

    async fn cursor_of_another_list_is_refused(test_database: TestDatabase) {
        let database = notes::open(&test_database).await;
        for text in ["i1", "i1_i2", "t61_t61", "i1_t61_t61"] {
            let request = PageRequest::default().after(text.parse().unwrap());
            let error = notes::page(&database, "ada", &request).await.unwrap_err();
            assert!(matches!(error, hob_database::Error::InvalidCursor), "{text}: {error:?}");
        }
    }
}
