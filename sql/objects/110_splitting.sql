-- Rows to train with, and rows to test with.

{{ function('cerebro_train_test_split') }}
