//! The make-believe service at work.

use hob_records::outbox::{self, Relay, Replay, Retention};
use hob_records::{Page, PageRequest, Read, Records};
use hob_testkit::every_database;

use crate::notes::{self, Note, NoteId, PUBLISHED, Publication, State};

fn id(n: usize) -> NoteId {
    NoteId(format!("n{n:03}"))
}

/// All pages, one after the other.
async fn all_pages(records: &Records, size: u16) -> Vec<Page<Note>> {
    let mut pages = Vec::new();
    let mut request = PageRequest::first(size);
    loop {
        let page = notes::page(records, "ada", &request).await.unwrap();
        let next = page.next.clone();
        pages.push(page);
        let Some(next) = next else { return pages };
        // As a client hands it back.
        request = request.after(next.to_string().parse().unwrap());
    }
}

every_database! {
    async fn what_was_written_is_read(database: Database) {
        let records = notes::open(&database).await;
        notes::add(&records, &id(1), "ada", "On engines").await.unwrap();
        let note = records.one(notes::by_id(&id(1))).await.unwrap();
        assert_eq!((note.id, note.author.as_str(), note.title.as_str()), (id(1), "ada", "On engines"));
        assert_eq!((note.state, note.pinned, note.version), (State::Draft, false, 1));
        assert_eq!(records.optional(notes::by_id(&id(2))).await.unwrap(), None);
    }

    async fn a_single_statement_is_a_change(database: Database) {
        let records = notes::open(&database).await;
        notes::add(&records, &id(1), "ada", "first").await.unwrap();
        assert!(notes::pin(&records, &id(1)).await.unwrap());
        assert!(!notes::pin(&records, &id(2)).await.unwrap());
        assert!(records.one(notes::by_id(&id(1))).await.unwrap().pinned);
    }

    async fn an_id_that_is_taken_is_told(database: Database) {
        let records = notes::open(&database).await;
        notes::add(&records, &id(1), "ada", "first").await.unwrap();
        let error = notes::add(&records, &id(1), "ada", "second").await.unwrap_err();
        assert!(error.is_taken(), "{error:?}");
    }

    async fn only_what_was_seen_is_published(database: Database) {
        let records = notes::open(&database).await;
        notes::add(&records, &id(1), "ada", "first").await.unwrap();
        assert_eq!(notes::publish(&records, &id(1), 7).await.unwrap(), Publication::Outdated);
        assert_eq!(notes::publish(&records, &id(1), 1).await.unwrap(), Publication::Published);
        assert_eq!(notes::publish(&records, &id(1), 2).await.unwrap(), Publication::Outdated);

        let mut relay = Relay::new(&records, Retention::default());
        relay.turn(async |_| Ok::<_, String>(())).await.unwrap();
        let Replay::Events(events) = outbox::after(&records, PUBLISHED, 0, 10).await.unwrap() else {
            panic!("events are missing");
        };
        let told: Vec<_> = events.iter().map(|event| (event.number, event.key.as_str())).collect();
        assert_eq!(told, [(1, "n001")]);
    }

    async fn a_list_of_ids_finds_those_that_are_there(database: Database) {
        let records = notes::open(&database).await;
        for n in 1..=5 {
            notes::add(&records, &id(n), "ada", "a note").await.unwrap();
        }
        for (asked, found) in [(vec![], 0), (vec![1], 1), (vec![1, 2, 9], 2), (vec![1, 2, 3, 4, 5], 5)] {
            let ids: Vec<_> = asked.into_iter().map(id).collect();
            assert_eq!(records.all(notes::titles(&ids)).await.unwrap().len(), found);
        }
    }

    async fn pages_hold_every_note_once_and_in_order(database: Database) {
        let records = notes::open(&database).await;
        for n in 0..25 {
            notes::add(&records, &id(n), "ada", "a note").await.unwrap();
            notes::add(&records, &id(100 + n), "another", "a note").await.unwrap();
        }
        let everything = all_pages(&records, 500).await.remove(0).rows;
        assert!(everything.is_sorted_by_key(|note| std::cmp::Reverse((note.created_at, note.id.0.clone()))));
        for size in [1, 7, 24, 25, 26] {
            let pages = all_pages(&records, size).await;
            assert_eq!(pages.len(), 25_usize.div_ceil(size.into()));
            let rows: Vec<Note> = pages.into_iter().flat_map(|page| page.rows).collect();
            assert_eq!(rows, everything);
        }
    }

    async fn a_note_that_comes_between_two_pages_moves_no_other(database: Database) {
        let records = notes::open(&database).await;
        for n in 0..4 {
            notes::add(&records, &id(n), "ada", "a note").await.unwrap();
        }
        let first = notes::page(&records, "ada", &PageRequest::first(2)).await.unwrap();
        notes::add(&records, &id(9), "ada", "a new one").await.unwrap();
        let request = PageRequest::first(2).after(first.next.unwrap());
        let second = notes::page(&records, "ada", &request).await.unwrap();
        let ids: Vec<_> = first.rows.into_iter().chain(second.rows).map(|note| note.id).collect();
        assert_eq!(ids, [id(3), id(2), id(1), id(0)]);
    }

    async fn a_cursor_of_another_list_is_refused(database: Database) {
        let records = notes::open(&database).await;
        for text in ["i1", "i1_i2", "t61_t61", "i1_t61_t61"] {
            let request = PageRequest::default().after(text.parse().unwrap());
            let error = notes::page(&records, "ada", &request).await.unwrap_err();
            assert!(matches!(error, hob_records::Error::Cursor), "{text}: {error:?}");
        }
    }
}
