//! Sign-in with OpenID Connect at `hob serve`.

mod browser {
    use hob_fixtures::TestIssuer;
    use hob_testkit::fantoccini::Locator;
    use hob_testkit::page::{press, press_labelled, text, wait_for_text};
    use hob_testkit::{Browser, LIMIT, Window, assert_readable, screenshot, wait_for};
    use serde_json::json;

    use crate::program::Server;

    // Requests of a test to its server block the thread, and the provider runs in the test.
    #[tokio::test(flavor = "multi_thread")]
    async fn viewer_signs_in_and_cannot_change_anything() {
        let issuer = TestIssuer::start().await;
        issuer.set_claims(json!({"groups": ["developers"]}));
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "a-token-with-24-characters-or-more").unwrap();
        let config = format!("[server]\nadmin_token = \"file:{}\"\n", token.display());
        let server = Server::start_configured("127.0.0.1:0", &config);

        // The redirect URL has the port of the server, which is known once it has started.
        let oidc = format!(
            "{config}[sign_in.oidc]\nissuer = \"{}\"\nclient_id = \"{}\"\nname = \"Example Login\"\n\
             redirect_url = \"{}\"\nroles = [{{ group = \"developers\", role = \"viewer\" }}]\n",
            issuer.url(),
            TestIssuer::CLIENT,
            server.url("/sign-in/oidc/callback"),
        );
        std::fs::write(server.folder.path().join("hob.toml"), oidc).unwrap();
        server.hang_up();
        wait_for("the button", LIMIT, async || server.get("/sign-in").body.contains("Example Login")).await;

        let browser = Browser::start();
        let client = browser.open(Window::default()).await;
        client.goto(&server.url("/")).await.unwrap();
        wait_for_text(&client, "h1", "Sign in").await;
        assert_readable(&client, "the sign-in page").await;
        screenshot(&client, "sign-in-oidc").await;
        press_labelled(&client, "Sign in with Example Login").await;
        wait_for_text(&client, "h1", "Overview").await;
        assert_eq!(text(&client, ".who").await, "ada@example.com");
        assert_eq!(client.current_url().await.unwrap().path(), "/");
        assert!(client.find(Locator::Css(".who a")).await.is_err(), "no link to the tokens");

        press(&client, ".nav a[href='/uptime']").await;
        wait_for_text(&client, "main", "0 monitors").await;
        assert!(
            client.find(Locator::Css("a[href='/uptime/new']")).await.is_err(),
            "no button to add a monitor"
        );
        client.goto(&server.url("/uptime/new")).await.unwrap();
        wait_for_text(&client, "main", "This requires the scope uptime:write").await;

        press(&client, ".nav a[href='/load']").await;
        wait_for_text(&client, "main", "No plans yet").await;
        assert!(
            client.find(Locator::Css("a[href='/load/plans/new']")).await.is_err(),
            "no button to add a plan"
        );

        press(&client, "form[action='/sign-out'] button").await;
        wait_for_text(&client, "h1", "Sign in").await;
        client.close().await.unwrap();
    }
}
