# Being written by another colleague (helper 8) since 03:31; leave this file to them. helper-6: keep test_relocation, test_checker, test_crash, test_retries, test_outage.
