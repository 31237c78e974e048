-- Where the training of a configuration ends: callbacks may stop it early, or choose an earlier state.

ALTER TABLE cerebro.catalog_configurations
    ADD COLUMN stopped_epoch integer CHECK (stopped_epoch >= 1),
    ADD COLUMN best_epoch    integer CHECK (best_epoch >= 1),
    ADD COLUMN model_epoch   integer CHECK (model_epoch >= 1);
