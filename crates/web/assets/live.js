// Live updates of pages.
